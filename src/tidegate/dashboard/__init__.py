"""The dashboard: pages that the server renders, and a little script that keeps them live.

parts, views     what screens are made of, and what each of them shows: frozen data
words            how each state looks; telling: how each event reads
rendering        templates, filters, static files
pages            the frame around a view, refusals as pages, forms that lead back
live, hostgrid   the stream that a page follows; a rollout's hosts as bytes
grids            such bytes, kept and brought up to date by the log
overview, rollouts, channels, approvals, revisions, plan, hosts, events, outbox, settings, door,
find             a file per screen
steering, steered, pinning, pinned     the verbs of rollouts and channels, and what they do
"""
