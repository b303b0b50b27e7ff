"""What each screen shows, as frozen data that the pages make from rows and templates render."""
