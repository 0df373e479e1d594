"""What an auditor asks of a lake: controls, anchors, evidence, verification."""
