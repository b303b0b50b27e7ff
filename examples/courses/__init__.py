"""Courses: a subscription that two entities must allow, course and student.

app.py   facts, slices and schema in one file; python -m examples.courses.app walks through it
"""
