"""SQLite files that live as long as a service does: full disks, locks, removal and damage are everyday matters."""
