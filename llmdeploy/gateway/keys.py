"""API keys as signed tokens: the gateway holds public keys only, the list of keys no secret.

A token is a JWT signed with Ed25519: `sub` names the client, `jti` is the key's id, `aud` the
service. Whoever has the signing key can issue; revoking is by id.
"""

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from pydantic import SecretStr, TypeAdapter, ValidationError

from llmdeploy.document import Document
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.gateway.filters import ISSUER, audience
from llmdeploy.gateway.state import ClientLimit, KeyRules
from llmdeploy.release.journal import sole_writer
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.service import DAY_S, FASTEST_RATE_PER_S, SLOWEST_RATE_PER_S

LONGEST_LIFE_S = 3650 * DAY_S
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class KeyRecord(Document):
    """What is kept of an issued key: everything but the key."""

    id: str
    client: str
    created_s: float
    expires_s: float
    rate_per_s: float | None = None
    """The client's own rate; the service's where None."""
    revoked_s: float | None = None

    def standing(self, now_s: float) -> str:
        """`revoked`, `expired` or `valid`."""
        if self.revoked_s is not None:
            return "revoked"
        return "expired" if self.expires_s <= now_s else "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A new key; the token is shown once and kept nowhere."""

    token: SecretStr
    record: KeyRecord


_RECORDS = TypeAdapter(tuple[KeyRecord, ...])


def records(layout: ServiceLayout, *, shell: Shell) -> tuple[KeyRecord, ...]:
    """All keys ever issued for the service, oldest first."""
    text = shell.read(_list(layout))
    if text is None:
        return ()
    try:
        return _RECORDS.validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{_list(layout)}: found {error.error_count()} entries that are no key records",
            fix=f"restore {_list(layout)} from a backup; without it no key can be revoked",
        ) from error


def add(
    client: str,
    *,
    service: str,
    expires_s: float,
    rate_per_s: float | None = None,
    layout: ServiceLayout,
    shell: Shell,
    clock: Clock,
) -> IssuedKey:
    """A new key of `client`, valid for `expires_s` seconds from now; its record is kept."""
    if not _CLIENT.fullmatch(client):
        raise InputError(
            f"client: found {client!r}, needed 1 to 63 letters, digits, dots, dashes, @ or _",
            fix="choose such a name, for example alice or billing-batch",
        )
    _check_numbers(expires_s, rate_per_s)
    signing = _signing_key(layout, shell)
    with _sole(layout, shell, clock):
        now_s = clock.now_s()
        record = KeyRecord(
            id=secrets.token_hex(8),
            client=client,
            created_s=now_s,
            expires_s=now_s + expires_s,
            rate_per_s=rate_per_s,
        )
        _write((*records(layout, shell=shell), record), layout, shell)
    return IssuedKey(token=SecretStr(_token(record, service, signing)), record=record)


def _check_numbers(expires_s: float, rate_per_s: float | None) -> None:
    if not 0 < expires_s <= LONGEST_LIFE_S:
        longest = f"{LONGEST_LIFE_S / DAY_S:.0f}d"
        raise InputError(
            f"expires: found {expires_s / DAY_S:g}d, needed more than 0 and at most {longest}",
            fix="say how long the key is to be valid, like --expires 90d",
        )
    if rate_per_s is not None and rate_per_s < SLOWEST_RATE_PER_S:
        raise InputError(
            f"rate: found {rate_per_s:g}/s, needed at least {SLOWEST_RATE_PER_S:g}/s (1/h)",
            fix="give a higher rate, or revoke the client's keys to lock it out",
        )
    if rate_per_s is not None and rate_per_s > FASTEST_RATE_PER_S:
        raise InputError(
            f"rate: found {rate_per_s:g}/s, needed at most {FASTEST_RATE_PER_S:g}/s",
            fix="leave --rate out: the client then has the service's own gateway.key_rate",
        )


def revoke(key_id: str, *, layout: ServiceLayout, shell: Shell, clock: Clock) -> KeyRecord:
    """The record of the key that is now revoked; revoking twice changes nothing."""
    with _sole(layout, shell, clock):
        known = records(layout, shell=shell)
        found = next((record for record in known if record.id == key_id), None)
        if found is None:
            ids = ", ".join(record.id for record in known[-5:]) or "none"
            raise InputError(
                f"{_list(layout)}: found no key with id {key_id}, needed one of: {ids}",
                fix="take the id from `llmdeploy keys list`",
            )
        if found.revoked_s is None:
            found = found.model_copy(update={"revoked_s": clock.now_s()})
            _write([found if r.id == key_id else r for r in known], layout, shell)
    return found


def rules(layout: ServiceLayout, *, shell: Shell, clock: Clock) -> KeyRules:
    """What the gateway must know of the keys; makes the signing key where there is none yet."""
    public = json.dumps(_public(_signing_key(layout, shell)), sort_keys=True)
    return rules_of(records(layout, shell=shell), public_keys=(public,), now_s=clock.now_s())


def rules_of(known: Sequence[KeyRecord], *, public_keys: tuple[str, ...], now_s: float) -> KeyRules:
    """Revoked ids until they would have expired anyway, and each client's newest own rate."""
    revoked = (r.id for r in known if r.revoked_s is not None and r.expires_s > now_s)
    valid = [r for r in known if r.standing(now_s) == "valid"]
    rates = {r.client: r.rate_per_s for r in valid if r.rate_per_s is not None}
    return KeyRules(
        public_keys=public_keys,
        revoked=tuple(sorted(revoked)),
        client_limits=tuple(
            ClientLimit(client=client, rate_per_s=rate_per_s)
            for client, rate_per_s in sorted(rates.items())
        ),
    )


def _token(record: KeyRecord, service: str, signing: dict[str, str]) -> str:
    claims = {
        "iss": ISSUER,
        "aud": audience(service),
        "sub": record.client,
        "jti": record.id,
        "iat": int(record.created_s),
        "exp": int(record.expires_s),
    }
    key = OKPAlgorithm.from_jwk(signing)
    return jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": signing["kid"]})  # type: ignore[arg-type]


def _signing_key(layout: ServiceLayout, shell: Shell) -> dict[str, str]:
    """The private key as a JWK, made on first use; two that make it at once get the same."""
    path = f"{layout.keys}/signing.json"
    text = shell.read(path)
    if text is None:
        fresh = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True)
        fresh |= {"kid": secrets.token_hex(4), "alg": "EdDSA", "use": "sig"}
        shell.create(path, json.dumps(fresh).encode(), mode=0o600)
        text = shell.read(path)
    try:
        key = json.loads(text or b"")
        OKPAlgorithm.from_jwk(key)
    except (ValueError, jwt.PyJWTError) as error:
        raise Refused(
            f"{path}: found no Ed25519 key, needed the service's signing key",
            fix=f"restore {path} from a backup, or remove it: all keys then become invalid",
        ) from error
    return dict(key)


def _public(signing: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in signing.items() if name not in ("d", "key_ops")}


@contextmanager
def _sole(layout: ServiceLayout, shell: Shell, clock: Clock) -> Iterator[None]:
    with sole_writer(f"{layout.keys}/records.writer", shell=shell, clock=clock):
        yield


def _write(known: Sequence[KeyRecord], layout: ServiceLayout, shell: Shell) -> None:
    text = json.dumps([record.model_dump(mode="json") for record in known], indent=1)
    shell.write(_list(layout), f"{text}\n".encode(), mode=0o600)


def _list(layout: ServiceLayout) -> str:
    return f"{layout.keys}/records.json"
