"""The server's side of the hosts: check gates, send orders, receive reports."""
