"""Small applications of the kernel, each run by the tests on every engine."""
