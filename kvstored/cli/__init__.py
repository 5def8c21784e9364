"""The command line: one file for each verb.

``main`` finds the verb and imports its module. The verbs, in the order of use: a configuration
is written (``init_command``), and the machine looked at (``doctor_command``); a device set is made
(``format_command``) and served (``run_command``); the daemon is asked whether it is there
(``ping_command``), what it does (``stats_command``), how full namespaces are
(``quotas_command``), what it holds (``ls_command``) and what one chunk is (``inspect_command``);
operators watch it and change what it does (``operate``);
sequences are written to files and read from them (``sequence_file``);
without a daemon, all bytes are verified
(``check_command``) and the places of the devices are measured (``bench_command``).

The command line itself is described for shells and as a manual page (``manual``).
What they share: options (``options``), a session with the daemon (``connection``), what is printed
(``output``), sizes (``sizes``), and failures that end a command with one sentence (``errors``).
"""
