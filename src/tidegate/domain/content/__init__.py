"""The content of a release: files by path, and the digest that identifies them.

paths         which paths a file may have, and which paths clash
references    which addresses a file may be fetched from
links         which symbolic links a tree may have
entries       one file: path, hash, size, executable or not; or a link
digests       the format of digests
manifests     all files of a release, checked
limits        how much content an installation accepts
differences   how two revisions differ
refusals      the errors

Server, command line and agent use the same code, so all of them accept the same paths and compute
the same digest. Nothing here reads or writes a file.
"""
