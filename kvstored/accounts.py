"""Who the configuration names: users and groups of this machine, and certificates."""

import grp
import os
import pwd

from kvstored.config import ConfigError
from kvstored.config_remote import RemoteSection
from kvstored.config_tenants import AccessSection
from kvstored.config_values import Account
from kvstored.server.access import AccessRules, Tenant
from kvstored.server.remote.certificates import (
    CertificateError,
    CertificateFiles,
    RenewedCertificates,
)
from kvstored.server.remote.remote_server import RemoteOptions


def access_rules(section: AccessSection) -> AccessRules:
    """The rules with every name looked up; raises ConfigError for an unknown one."""
    return AccessRules(
        daemon_uid=os.getuid(),
        tenants=tuple(
            Tenant(
                namespace=tenant.namespace,
                uids=frozenset(map(user_id, tenant.users)),
                gids=frozenset(map(group_id, tenant.groups)),
                certificates=frozenset(tenant.certificates),
                huge_pages=tenant.huge_pages,
            )
            for tenant in section.tenants
        ),
    )


def user_id(account: Account) -> int:
    """The number of a Unix user."""
    if isinstance(account, int):
        return account
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError as error:
        raise ConfigError(
            f"access.tenants names the user {account!r}, which this machine does not have; "
            "create it or correct the name"
        ) from error


def group_id(account: Account) -> int:
    """The number of a Unix group."""
    if isinstance(account, int):
        return account
    try:
        return grp.getgrnam(account).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"the configuration names the group {account!r}, which this machine does not have; "
            "create it or correct the name"
        ) from error


def socket_group(account: Account | None) -> int | None:
    """The group of the sockets, if one is configured."""
    return None if account is None else group_id(account)


def remote_options(section: RemoteSection) -> RemoteOptions | None:
    """Where callers on other machines are served; raises ConfigError for useless certificates."""
    address = section.address()
    if address is None:
        return None
    assert section.certificate is not None
    assert section.private_key is not None
    assert section.client_authorities is not None
    files = CertificateFiles(
        certificate=section.certificate,
        private_key=section.private_key,
        client_authorities=section.client_authorities,
    )
    try:
        certificates = RenewedCertificates(files)
    except CertificateError as error:
        raise ConfigError(str(error)) from error
    return RemoteOptions(host=address.host, port=address.port, certificates=certificates)
