"""The configuration of clusters with an authorizer, as the theme `security` draws it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from kraftlite.model.principal import USER, Principal
from kraftlite.sim.shape import Shape

ADMIN: Final = Principal(USER, "admin")
"""A super user."""
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def vary(shape: Shape, seed: int) -> Shape:
    rng = random.Random(f"security/{seed}")
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": str(ADMIN),
        "allow.everyone.if.no.acl.found": rng.choice(("false", "false", "true")),
    }
    return replace(shape, config={**shape.config, **config})
