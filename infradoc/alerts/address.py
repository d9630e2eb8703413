"""Which addresses a notification may go to: public ones, unless the sink says `allow_private = true`.

Whoever can write a sink's address (or its DNS) must not be able to reach what only this machine reaches: the loopback,
the private network, a cloud's metadata service. So a name is resolved here, every address is judged, and the
connection goes to an address that was judged: a name that resolves differently a moment later changes nothing.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# They hand out credentials to whoever asks: never a place for alerts, whatever is allowed otherwise.
# EC2, GCE, Azure and others; ECS; EKS; Alibaba; Azure's wire server, which has a public address.
METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "fd00:ec2::254", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"),
            *("100.100.100.200", "168.63.129.16"),
        ),
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def refusal(text: str, allow_private: bool) -> str:
    """Why nothing may be sent to this address; "" when it may be."""
    try:
        address = inner(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return f"{text} is no address"
    if address in METADATA:
        return f"{address} is a cloud's metadata service"
    if address.is_multicast or address.is_unspecified:
        return f"{address} is no address of one machine"
    if allow_private:
        return ""
    if address.is_loopback:
        return f"{address} is this machine"
    if address.is_link_local:
        return f"{address} is a link-local address"
    return "" if address.is_global else f"{address} is a private address"


def inner(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one (mapped, 6to4, NAT64), since that is where the packets go."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
