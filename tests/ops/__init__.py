"""Files that operators load elsewhere: alert rules and a dashboard."""
