"""User interface: screens, Ctrl-C, notifications, texts, JSON documents, HTML pages."""
