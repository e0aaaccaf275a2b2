"""The words of the command line, one function a command."""
