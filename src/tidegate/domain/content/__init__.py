"""What a release consists of: files by path, and the digest that names them.

paths         which paths a file may have, and which cannot be together
references    which addresses a file may be fetched from
links         which symbolic links a tree may have
entries       one file: path, hash, size, executable or not; or a link
digests       the one digest form; the name of some bytes
manifests     all files of a release, checked
limits        how much of it an installation takes in
differences   how two of them differ
refusals      what can be wrong with any of it

Server, command line and agent use the same code, so none of them takes a path that another one
refuses, and all compute the same digest. Nothing here reads or writes a file.
"""
