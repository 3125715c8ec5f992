"""The broker: its lifecycle at the controller, its log directories, and what the metadata log makes it do."""
