"""The kernel on DynamoDB: one table, one transaction per commit, no index but the table itself.

transport ◀─ client          five calls, and how boto3 makes them
items                        what lies in the table
draft ─▶ commit              what a commit demands and changes; how it lands
log, read, rows              how slots, decisions and rows are read
rules                        by which rule events were filed
presence                     who has the log open
store                        all of it as the kernel's Store
"""

from __future__ import annotations

from tidegate.engines.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
