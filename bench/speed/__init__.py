"""How fast our engines are compared with their peers, on the same work, in the same minutes.

workload     the events, tags and conditions, equal for all
contender    what each store must do; ours, umadb_server, eventsourcing_recorder do it
measure      one cell: one kind of work on one log for a second or so
rounds       all cells, contenders interleaved in random order, the best round kept
memory       resident memory of a process that appends a million events
floors       the floors, computed from the results
report       tables for people, JSON for programs, the measured part of docs/performance.md
"""
