"""The main job as a story that a newcomer can follow: killed, settled, shipped, compacted, queried.

It stands at the top of the arrows because it uses every layer. `shop.py` is the outside world, `fulfilment.py` the
agents and their tools, `worker.py` the process that is killed, `story.py` what is told.
"""
