#!/bin/sh
# Puts user, folders, units, manual and completion of kvstored in their places. The program must be
# in /opt/kvstored already. An existing configuration stays as it is. docs/install.md says more.
set -eu
cd "$(dirname "$0")/.."

install -D -m 644 systemd/sysusers.d/kvstored.conf /usr/lib/sysusers.d/kvstored.conf
install -D -m 644 systemd/tmpfiles.d/kvstored.conf /usr/lib/tmpfiles.d/kvstored.conf
install -D -m 644 systemd/sysctl.d/kvstored.conf /usr/lib/sysctl.d/kvstored.conf
install -m 644 systemd/kvstored.service systemd/kvstored.socket /etc/systemd/system/
# Orders an engine's unit after the store, wherever there is one.
install -D -m 644 systemd/vllm.service.d/kvstored.conf /etc/systemd/system/vllm.service.d/kvstored.conf
systemd-sysusers kvstored.conf
systemd-tmpfiles --create kvstored.conf
[ -e /etc/kvstored/kvstored.toml ] || install -m 644 systemd/kvstored.toml /etc/kvstored/kvstored.toml
sysctl --quiet --load /usr/lib/sysctl.d/kvstored.conf ||
    echo "huge pages stay as they are: this machine, or this container, lets nobody change them" >&2

ln --symbolic --force /opt/kvstored/bin/kvstored /usr/local/bin/kvstored
install -D -m 644 docs/kvstored.1 /usr/local/share/man/man1/kvstored.1
install -d /etc/bash_completion.d
/opt/kvstored/bin/kvstored completion bash > /etc/bash_completion.d/kvstored
systemctl daemon-reload
