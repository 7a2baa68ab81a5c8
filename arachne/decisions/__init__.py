"""Decisions between classes, and losses: functions of class scores, for models and tasks alike."""
