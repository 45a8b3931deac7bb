"""Where commands get things done: by the stages in this process, or by the HTTP API of another machine."""
