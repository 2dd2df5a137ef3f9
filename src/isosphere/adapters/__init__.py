"""SEC and the monitor in other people's trainers, one file each."""
