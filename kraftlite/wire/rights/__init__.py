"""The rights of clients, as a column of the table of APIs: what each needs, and the answers to those who lack it (SE-40)."""
