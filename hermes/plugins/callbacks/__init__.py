"""The built-in callback handlers, found by name through `hermes.callback_handlers`."""
