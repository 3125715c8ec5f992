"""How long failures lasted: what a run recorded (metadata log, traces, histories), and what follows from it."""
