from typing import Any

CONTRACT: int

def fill(data: Any, edges: Any, found: Any, longest: int, /) -> None: ...
