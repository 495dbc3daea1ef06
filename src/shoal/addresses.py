"""Which kind of address a crawler is sent to. Only public ones are fetched from without being asked.

Pages and servers say where a crawler goes next, so they could send it to what only this machine or network
can reach (server-side request forgery). Nothing is looked up here: `shoal.fetch.connection` asks about every
address right before it connects to it.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Literal, TypeAlias, get_args

from shoal.urls import host_key

Kind: TypeAlias = Literal["loopback", "private", "link-local", "cloud metadata", "multicast", "reserved"]
"""What an address may be instead of public. Private: RFC 1918, RFC 6598 (carrier-grade NAT), RFC 4193."""

KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PRIVATE: Final = tuple(
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_METADATA: Final = frozenset(
    ipaddress.ip_address(address)  # of cloud machines: secrets, inside or outside of private networks
    for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")  # RFC 4291 section 2.4
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1
_IPV4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")  # RFC 4291 section 2.5.5.1


def kind_of(address: str) -> Kind | None:
    """What `address` is; None if it is public.

    IPv4 inside IPv6 (mapped, compatible, 6to4, NAT64) counts as that IPv4 address.
    Raises ValueError if it is not an IP address.
    """
    ip = _innermost(ipaddress.ip_address(address))
    if ip in _METADATA:
        return "cloud metadata"
    if ip.is_loopback:
        return "loopback"
    if any(ip in network for network in _PRIVATE):
        return "private"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast:
        return "multicast"
    if ip.is_global and (ip.version == 4 or ip in _GLOBAL_UNICAST):
        return None
    return "reserved"


def kind_of_host(url: str) -> Kind | None:
    """What the host of a normalized URL is without being looked up: an address, or this machine by its name.

    None for any other name, as for a public address (RFC 6761 section 6.3 reserves localhost).
    """
    host = host_key(url)
    name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
    label = name.rstrip(".").rpartition(".")[2]
    try:
        return kind_of("127.0.0.1" if label == "localhost" else name)
    except ValueError:
        return None


def _innermost(ip: _Address) -> _Address:
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour
    if inner is None and (ip in _NAT64 or (ip in _IPV4_COMPATIBLE and int(ip) > 1)):
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return inner or ip
