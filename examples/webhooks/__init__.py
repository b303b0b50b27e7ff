"""Two receivers of webhooks that do the same: one in Python, one for Node."""
