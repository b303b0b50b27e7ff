"""The dashboard: pages that the server renders, and a small script that keeps them live.

pages                         a module per screen; ..._actions and ..._forms are its forms
components, view_models       what screens are made of, and what each of them shows: frozen data
state_labels, event_text      how each state looks, and how each event reads
layout, html                  the frame around a screen; templates, filters, static files
live                          the stream of changes that a page follows
grid_encoding, grid_cache     the hosts of a rollout as bytes, kept up to date from the log
gate_panel, channel_map       why a rollout waits; the map of channels
rollout_verbs, channel_verbs  which buttons a screen has now, and why the others are disabled
"""
