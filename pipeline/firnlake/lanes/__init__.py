"""The kinds of work: what each lane is due for, finds, publishes and remembers."""
