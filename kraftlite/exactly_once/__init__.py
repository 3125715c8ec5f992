"""Output that is written exactly once, whoever dies: staged in transactions, decided in one record, ended, healed."""
