"""PixMC-Sparse on MuJoCo: eight manipulation tasks as Gymnasium environments.

Importing this package registers the tasks (`mimex/FrankaPick-v0` and so on). MuJoCo and OpenGL are
imported when an environment is created.
"""

from mimex.envs.register import register_all

register_all()
