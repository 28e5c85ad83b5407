"""Converts the geoms of a compiled MuJoCo model to nodes of a viser scene."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

ROOT = "/mujoco"
HIDDEN_GROUP = 3  # geoms of this group and above are not drawn, as in MuJoCo's own viewer
DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's, which a material overrides
SKY = (222, 230, 238)
VIDEO_CAMERA = "video"


class Scene:
    """Draws one simulation, with one frame per body that contains the body's geoms.

    Boxes, spheres, capsules, cylinders, ellipsoids, meshes and planes are drawn; height fields and
    signed distance fields are not.

    Args:
        server: The viser server.
        model: The compiled model.
    """

    def __init__(self, server: Any, model: mujoco.MjModel) -> None:
        self._server, self._model = server, model
        scene = server.scene
        self._root = scene.add_frame(ROOT, show_axes=False)
        self._bodies: dict[int, Any] = {}
        self._geoms: dict[int, Any] = {}
        for geom in range(model.ngeom):
            color, opacity = _look(model, geom)
            if model.geom_group[geom] >= HIDDEN_GROUP or opacity == 0:
                continue
            body = int(model.geom_bodyid[geom])
            if body not in self._bodies:
                self._bodies[body] = scene.add_frame(f"{ROOT}/{body}", show_axes=False)
            node = _add_geom(scene, f"{ROOT}/{body}/{geom}", model, geom, color, opacity)
            if node is not None:
                self._geoms[geom] = node
        self._drawn: dict[int, Floats] = {}  # last pose (7,) sent for each body
        self.place_geoms()

    def place_geoms(self) -> None:
        """Places the geoms in their bodies; a few tasks move them at a reset."""
        for geom, node in self._geoms.items():
            node.position = self._model.geom_pos[geom]
            node.wxyz = self._model.geom_quat[geom]

    def update(self, positions: Floats, rotations: Floats) -> None:
        """Moves the bodies.

        Args:
            positions: ``(bodies, 3)``, MuJoCo's ``xpos`` (m).
            rotations: ``(bodies, 4)``, MuJoCo's ``xquat`` (w, x, y, z).
        """
        with self._server.atomic():  # the browser draws all of them in one frame
            for body, node in self._bodies.items():
                pose = np.concatenate([positions[body], rotations[body]])
                if not np.array_equal(pose, self._drawn.get(body, ())):
                    node.position, node.wxyz = pose[:3], pose[3:]
                    self._drawn[body] = pose

    def remove(self) -> None:
        """Removes all nodes."""
        self._root.remove()


def set_camera(server: Any, model: mujoco.MjModel) -> None:
    """Sets the initial camera of all open and future pages.

    It is the model's camera "video" if there is one, and otherwise a view of the whole scene.
    """
    center, extent = np.array(model.stat.center), float(model.stat.extent)
    names = [model.camera(index).name for index in range(model.ncam)]
    if VIDEO_CAMERA in names:
        camera = model.camera(VIDEO_CAMERA)
        eye, fov = np.array(camera.pos), np.radians(float(camera.fovy[0]))
        back = np.zeros(9)
        mujoco.mju_quat2Mat(back, camera.quat)
        ahead = -back.reshape(3, 3)[:, 2]
        target = eye + ahead * max(float((center - eye) @ ahead), 0.1)
    else:
        eye, fov = center + extent * np.array([0.6, -1.6, 0.8]), np.radians(45.0)
        target = center
    start = server.initial_camera
    start.up, start.fov = (0.0, 0.0, 1.0), float(fov)
    start.position, start.look_at = tuple(eye.tolist()), tuple(target.tolist())
    for client in server.get_clients().values():
        client.camera.up_direction, client.camera.fov = (0.0, 0.0, 1.0), float(fov)
        client.camera.position, client.camera.look_at = eye, target


def set_surroundings(server: Any) -> None:
    """Adds the sky and the lights."""
    scene = server.scene
    scene.set_up_direction("+z")
    scene.set_background_image(np.full((1, 1, 3), SKY, np.uint8), format="png")
    # Image-based lighting on top of viser's lights washes out light colors such as the table's.
    scene.configure_environment_map(hdri=None)
    scene.add_light_hemisphere("/sky", ground_color=(200, 200, 200), intensity=0.8)


def _look(model: mujoco.MjModel, geom: int) -> tuple[tuple[int, int, int], float]:
    """Returns the color (0 to 255) and the opacity of a geom."""
    rgba, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and tuple(rgba) == DEFAULT_RGBA:
        rgba = model.mat_rgba[material]
    red, green, blue = (round(255 * float(part)) for part in np.clip(rgba[:3], 0.0, 1.0))
    return (red, green, blue), float(rgba[3])


def _add_geom(
    scene: Any,
    name: str,
    model: mujoco.MjModel,
    geom: int,
    color: tuple[int, int, int],
    opacity: float,
) -> Any:
    """Adds a node in the geom's frame; returns None if the geom type is not supported."""
    kind, size = mujoco.mjtGeom(int(model.geom_type[geom])), model.geom_size[geom].tolist()
    look: dict[str, Any] = {"color": color, "opacity": opacity if opacity < 1 else None}
    match kind:
        case mujoco.mjtGeom.mjGEOM_BOX:
            return scene.add_box(name, dimensions=tuple(2 * half for half in size), **look)
        case mujoco.mjtGeom.mjGEOM_SPHERE:
            return scene.add_icosphere(name, radius=size[0], **look)
        case mujoco.mjtGeom.mjGEOM_ELLIPSOID:
            return scene.add_icosphere(name, radius=1.0, scale=tuple(size), **look)
        case mujoco.mjtGeom.mjGEOM_CYLINDER:
            return scene.add_cylinder(name, radius=size[0], height=2 * size[1], **look)
        case mujoco.mjtGeom.mjGEOM_CAPSULE:
            return scene.add_mesh_simple(name, *capsule(size[0], size[1]), **look)
        case mujoco.mjtGeom.mjGEOM_MESH:
            return scene.add_mesh_simple(name, *_mesh(model, int(model.geom_dataid[geom])), **look)
        case mujoco.mjtGeom.mjGEOM_PLANE:
            return _add_plane(scene, name, size, color, opacity)
        case _:
            return None


def _add_plane(
    scene: Any, name: str, size: list[float], color: tuple[int, int, int], opacity: float
) -> Any:
    """Adds a plane with grid lines; size 0 means infinite."""
    lines = tuple(round(0.85 * part) for part in color)
    return scene.add_grid(
        name,
        width=2 * size[0],
        height=2 * size[1],
        infinite_grid=0 in size[:2],
        plane_color=color,
        plane_opacity=opacity,
        cell_color=lines,
        section_color=lines,
        shadow_opacity=0.3,
    )


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[Floats, NDArray[np.integer[Any]]]:
    """Returns the vertices and faces of a mesh."""
    vertex, face = int(model.mesh_vertadr[mesh]), int(model.mesh_faceadr[mesh])
    vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[mesh])]
    return vertices, model.mesh_face[face : face + int(model.mesh_facenum[mesh])]


def capsule(
    radius: float, half: float, segments: int = 24, rings: int = 8
) -> tuple[Floats, NDArray[np.integer[Any]]]:
    """Returns the vertices and faces of a capsule along z, as defined by MuJoCo.

    Args:
        radius: Radius (m).
        half: Half the distance between the centers of the half spheres (m).
        segments: Vertices around the axis.
        rings: Rings of vertices in each half sphere.
    """
    quarter = np.linspace(0.0, np.pi / 2, rings + 1)
    latitude = np.concatenate([quarter - np.pi / 2, quarter])  # from the lower pole to the upper
    centers = np.repeat([-half, half], rings + 1)
    angle = np.linspace(0.0, 2 * np.pi, segments, endpoint=False)
    around = radius * np.cos(latitude)[:, None]
    height = np.broadcast_to(
        (centers + radius * np.sin(latitude))[:, None], (len(centers), segments)
    )
    vertices = np.stack([around * np.cos(angle), around * np.sin(angle), height], -1)
    here = np.arange(vertices[..., 0].size).reshape(-1, segments)
    right = np.roll(here, -1, axis=1)
    low, low_right, up, up_right = here[:-1], right[:-1], here[1:], right[1:]
    faces = np.stack([np.stack([low, low_right, up_right], -1), np.stack([low, up_right, up], -1)])
    return vertices.reshape(-1, 3), faces.reshape(-1, 3)
