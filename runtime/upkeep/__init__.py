"""What looks after a root: check, measure, retain, collect garbage, back up, restore, bring back from elsewhere."""
