"""What the gateway must be right now: the one input from which all Envoy files are rendered."""

from llmdeploy.document import Document
from llmdeploy.release.state import Endpoint


class GatewayRelease(Document):
    """A release the gateway can send to."""

    id: str
    endpoints: tuple[Endpoint, ...]
    max_concurrency: int
    """Requests its engines decode together; with the gateway's queue the bound before 429."""


class Weight(Document):
    """The share of traffic of one release."""

    release: str
    share: float
    """0 to 1; all shares of a gateway sum to 1, or there is no live release at all."""


class ClientLimit(Document):
    """A key holder's own request rate."""

    client: str
    rate_per_s: float


class KeyRules(Document):
    """What the keys of a service mean to its gateway; written by `gateway.keys`."""

    public_keys: tuple[str, ...]
    """JWK JSON objects of the keys that may sign tokens."""
    revoked: tuple[str, ...] = ()
    """Ids (jti) of tokens that are no longer accepted."""
    client_limits: tuple[ClientLimit, ...] = ()


class GatewayState(Document):
    """Listener, rules, releases and weights; changes are new states, applied by rename."""

    service: str
    host: str
    port: int
    allow: tuple[str, ...]
    key_rate_per_s: float
    client_limits: tuple[ClientLimit, ...] = ()
    public_keys: tuple[str, ...]
    revoked: tuple[str, ...] = ()
    max_queue: int
    body_limit_bytes: int
    request_timeout_s: float
    tls_certificate: str | None = None
    tls_key: str | None = None
    releases: tuple[GatewayRelease, ...] = ()
    weights: tuple[Weight, ...] = ()
    fallback: str | None = None
    """The proven release: it answers where another release fails, and no other answers for it.
    Kept by `with_weights`: the release that had all traffic before the present split."""

    def release(self, release_id: str) -> GatewayRelease | None:
        """The release with that id, None where the gateway does not know it."""
        return next((r for r in self.releases if r.id == release_id), None)

    def share(self, release_id: str) -> float:
        """The release's share of traffic (0 to 1); 0 for one without a weight."""
        return sum((w.share for w in self.weights if w.release == release_id), 0.0)
