"""PixMC-Sparse on MuJoCo: eight manipulation tasks, reached through Gymnasium.

Importing this package registers the tasks (`mimex/FrankaPick-v0` and so on) and loads neither
MuJoCo nor OpenGL; making one does.
"""

from mimex.envs.register import register_all

register_all()
