"""Generic rows under a write policy: create, put, update, delete, with conditions and retries."""
