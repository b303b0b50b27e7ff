"""The server's side of the hosts: gates are asked, orders are handed out, reports are taken."""
