"""What services tell of themselves, and how it is shown: profiles and loads."""
