"""The locks of an embedded cluster that is made with `secure=True`, and the keys for its clients."""

from __future__ import annotations

from typing import Final

from kraftlite.security.first_users import ADMIN, FIRST_USERS, MECHANISM, add_scram_argument, new_password
from kraftlite.testing.errors import ClusterError
from kraftlite.tls.authority import Authority

LISTENER: Final = "SASL_SSL"
_HOSTS: Final = ("localhost", "127.0.0.1")


class Secrets:
    """A certificate authority and the passwords of the first users. Nothing of it is in a file."""

    def __init__(self) -> None:
        self._authority = Authority.create("kraftlite.testing")
        self._passwords = {user: new_password() for user in FIRST_USERS}
        self.credentials = tuple(add_scram_argument(user, password) for user, password in self._passwords.items())
        """The users' credentials, as nodes are formatted with them."""

    def node_config(self) -> dict[str, str]:
        """Certificates are only shown to clients: nodes reach each other over a network in memory."""
        issued = self._authority.issue("node", _HOSTS)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": issued.certificate_pem().decode(),
            "ssl.keystore.key": issued.key_pem().decode(),
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }

    def client_config(self, user: str, bootstrap_servers: str) -> dict[str, str]:
        """The options of a librdkafka client of this user. Raises ClusterError for one that the cluster does not begin with."""
        if user not in self._passwords:
            raise ClusterError(f"user {user!r} is not one of {', '.join(self._passwords)}")
        return {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
            "ssl.ca.pem": self._authority.certificate_pem().decode(),
        }

    def admin_properties(self) -> dict[str, str]:
        """The same for our own client, in Kafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self._passwords[ADMIN],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self._authority.certificate_pem().decode(),
        }
