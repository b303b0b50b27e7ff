"""HTTP for the API and the dashboard: connections, routing, decoding, authentication, problems."""
