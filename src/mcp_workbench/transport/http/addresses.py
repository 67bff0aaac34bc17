"""Which addresses may be connected to when the network, and not the operator, named them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# Beyond what `is_global` excludes: addresses that carry another one inside, and the old private ones.
_EXCLUDED = tuple(
    ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "fec0::/10")
)


def is_public(text: str) -> bool:
    """Is this the address of a host on the public internet? Text that is no address is not."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None or any(address in net for net in _EXCLUDED):
            return False
        return address.is_global and not address.is_multicast
    return _is_public_v4(address)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved
