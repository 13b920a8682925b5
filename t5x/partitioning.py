"""Layout of arrays over devices: one rule per logical axis, one mesh of `data` × `model`.

Source of the axis names and rules: T5X's logical axes (Roberts et al. 2022, section 3).
"""

import contextlib
import contextvars
import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from common.errors import UserError

Rules = Sequence[tuple[str, str | None]]
_active: contextvars.ContextVar["PjitPartitioner | None"] = contextvars.ContextVar(
    "partitioner whose rules `constrain` follows", default=None
)


def standard_logical_axis_rules(
    activation_partitioning_dims: int = 1,
    parameter_partitioning_dims: int = 2,
    additional_rules: Rules | None = None,
) -> Rules:
    """Return rules from logical axis to mesh axis; the first match is used, as in T5X.

    With `activation_partitioning_dims` 2, activations are sharded over `model` along `embed` too.
    With `parameter_partitioning_dims` 2, parameters and optimizer state are sharded over `data`
    too: each device holds and updates its part (ZeRO, Rajbhandari et al. 2020); with 1, upstream's
    default, every replica holds and updates all. `additional_rules` are appended, so they only
    matter for axes without a rule.
    """
    return [
        ("batch", "data"),
        *((name, "model") for name in ("vocab", "mlp", "heads", "joined_kv")),
        *([("embed", "model")] if activation_partitioning_dims == 2 else []),
        *([("embed", "data")] if parameter_partitioning_dims == 2 else []),
        *((name, None) for name in ("embed", "kv", "relpos_buckets", "length", "layers")),
        *(additional_rules or ()),
    ]


def mesh_axes(
    logical_axes: Sequence[str | None], rules: Rules, mesh: Mesh, shape: Sequence[int]
) -> PartitionSpec:
    """Return the mesh axis of each dimension of `shape`; raise UserError without a rule.

    A mesh axis shards one dimension only, and only one that it divides.
    """
    unknown = {a for a in logical_axes if a} - {name for name, _ in rules}
    if unknown:
        raise UserError(
            f"Logical axes {sorted(unknown)}",
            why="have no rule",
            to_set="add them to partitioning.standard_logical_axis_rules.additional_rules",
        )
    spec: dict[int, str | None] = {}
    for name, mesh_axis in rules:
        for i, logical in enumerate(logical_axes):
            if logical != name or i in spec:
                continue
            if mesh_axis is None:
                spec[i] = None
            elif mesh_axis not in spec.values() and shape[i] % mesh.shape[mesh_axis] == 0:
                spec[i] = mesh_axis
    return PartitionSpec(*(spec.get(i) for i in range(len(logical_axes))))


class PjitPartitioner:
    """Shards parameters and batches over all devices as `data` × `model`.

    Args:
      num_partitions: devices that share one copy of the model; divides the number of devices.
      model_parallel_submesh: the same as TPU coordinates (x, y, z, core); their product counts.
      params_on_devices: only True.
      backend: JAX backend, default the best one.
      ici_mesh_shape: instead of the first two, (replica, data, model) devices of each slice.
      dcn_mesh_shape: (replica, data, model) slices. The axis `data` is the product of replica and
        data of both, so parameters that rules shard over `data` are sharded over slices too.
      logical_axis_rules: see `standard_logical_axis_rules`.
      devices: instead of all devices of the backend, such as the devices of a described slice.
    """

    def __init__(
        self,
        num_partitions: int | None = None,
        model_parallel_submesh: Sequence[int] | None = None,
        params_on_devices: bool = True,
        backend: str | None = None,
        ici_mesh_shape: Sequence[int] | None = None,
        dcn_mesh_shape: Sequence[int] | None = None,
        logical_axis_rules: Rules | None = None,
        devices: Sequence[jax.Device] | None = None,
    ):
        if not params_on_devices:
            raise UserError(
                "PjitPartitioner.params_on_devices",
                False,
                "which is not supported",
                "leave it True",
            )
        self.hybrid = hybrid_shape(ici_mesh_shape, dcn_mesh_shape)
        self.submesh = tuple(model_parallel_submesh or ()) if not self.hybrid else ()
        submesh = math.prod(self.submesh) if self.submesh else None
        if num_partitions and submesh and num_partitions not in (1, submesh):
            raise UserError(
                "PjitPartitioner.num_partitions",
                num_partitions,
                f"but model_parallel_submesh {self.submesh} has {submesh} devices",
                "set one of them",
            )
        self.num_partitions = submesh or num_partitions or 1
        if self.hybrid:
            self.num_partitions = self.hybrid[0][2] * self.hybrid[1][2]
        self.backend = backend
        self.rules = list(logical_axis_rules or standard_logical_axis_rules())
        self._devices = devices

    @functools.cached_property
    def mesh(self) -> Mesh:
        """All devices as `data` × `model`; UserError if num_partitions does not divide them."""
        try:
            devices = list(self._devices or jax.devices(self.backend))
        except RuntimeError as error:
            if self.backend is None:
                raise
            raise UserError(
                "PjitPartitioner.backend",
                self.backend,
                f"which this machine does not have ({error})",
                "set it to None for the best one",
            ) from error
        count, model = len(devices), self.num_partitions
        if count % model:
            raise UserError(
                "PjitPartitioner.num_partitions",
                model,
                f"which does not divide the {count} {devices[0].platform.upper()} "
                f"device{'s' * (count > 1)} of this run",
                f"pass --gin.partitioning.PjitPartitioner.num_partitions={math.gcd(count, model)}",
            )
        if self.hybrid:
            grid = hybrid_grid(devices, *self.hybrid)
        elif self.submesh and hasattr(devices[0], "coords"):
            grid = submesh_grid(devices, self.submesh)
        elif devices[0].platform == "tpu":
            shape = (count // model, model)
            grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
        else:
            grid = np.array(devices).reshape(count // model, model)
        return Mesh(side_by_side(grid), ("data", "model"))

    def over(self, devices: Sequence[jax.Device]) -> "PjitPartitioner":
        """Return the same layout over other devices, such as a described slice's."""
        other = copy.copy(self)
        other._devices = devices
        other.__dict__.pop("mesh", None)  # mesh of the previous devices
        return other

    def check_batch(self, batch_size: int, num_microbatches: int | None, name: str) -> None:
        """Raise UserError unless data-parallel devices × microbatches divide a batch."""
        parts = self.mesh.shape["data"]
        pieces = parts * (num_microbatches or 1)
        if batch_size % pieces:
            raise UserError(
                name,
                batch_size,
                f"but must be a multiple of {parts} data-parallel devices × "
                f"{num_microbatches or 1} microbatches",
                f"set it to a multiple of {pieces}, or change trainer.Trainer.num_microbatches or "
                "partitioning.PjitPartitioner.num_partitions",
            )

    def host_rows(self, batch_size: int) -> tuple[int, int]:
        """Return the first row and the end of the rows of a global batch on this host's devices."""
        indices = self.batch_sharding.addressable_devices_indices_map((batch_size,)).values()
        bounds = [index[0].indices(batch_size) for index in indices if index is not None]
        return min(b[0] for b in bounds), max(b[1] for b in bounds)

    def is_first_with_rows(self, batch_size: int) -> bool:
        """Return whether this is the first of the hosts that share a replica, and so its rows."""
        first, _ = self.host_rows(batch_size)
        indices = self.batch_sharding.devices_indices_map((batch_size,)).items()
        mine = [device for device, index in indices if index[0].indices(batch_size)[0] == first]
        hosts = [getattr(device, "process_index") for device in mine]  # noqa: B009 (unknown to mypy)
        return jax.process_index() == min(hosts)

    def sharding(self, logical_axes: Sequence[str | None], shape: Sequence[int]) -> NamedSharding:
        """Return the sharding of an array of `shape` with these logical axes."""
        return NamedSharding(self.mesh, mesh_axes(logical_axes, self.rules, self.mesh, shape))

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of a full copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def batch_sharding(self) -> NamedSharding:
        """The sharding of rows over `data`, for any rank."""
        return NamedSharding(self.mesh, PartitionSpec("data"))

    @contextlib.contextmanager
    def activations(self) -> Iterator[None]:
        """Make `constrain` follow these rules while a function is traced."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)


def submesh_grid(devices: Sequence[jax.Device], submesh: Sequence[int]) -> np.ndarray:
    """Return devices [data, model], each row a block of `submesh` (x, y, z, core)."""
    place = lambda d: (*d.coords, getattr(d, "core_on_chip", 0))
    size = tuple(max(place(d)[i] for d in devices) + 1 for i in range(4))
    submesh = (*submesh, 1, 1, 1)[:4]
    if any(s % b for s, b in zip(size, submesh, strict=True)):
        raise UserError(
            "PjitPartitioner.model_parallel_submesh",
            submesh,
            f"which does not tile the slice {size} (x, y, z, core)",
            "set it to divisors of these",
        )
    block = lambda d: tuple(p // b for p, b in zip(place(d), submesh, strict=True))
    ordered = sorted(devices, key=lambda d: (block(d), place(d)))
    return np.array(ordered).reshape(-1, math.prod(submesh))


def hybrid_shape(
    ici: Sequence[int] | None, dcn: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return both shapes, or None if neither is set; raise UserError unless each has 3 numbers."""
    if ici is None and dcn is None:
        return None
    if not (ici and dcn and len(ici) == len(dcn) == 3):
        raise UserError(
            "PjitPartitioner.ici_mesh_shape",
            ici,
            f"and dcn_mesh_shape {dcn}",
            "set both to (replica, data, model), or neither",
        )
    return tuple(ici), tuple(dcn)


def hybrid_grid(
    devices: Sequence[jax.Device], ici: tuple[int, ...], dcn: tuple[int, ...]
) -> np.ndarray:
    """Return devices [data, model] of `dcn` slices of `ici` devices, (replica, data, model) each.

    If devices do not name their slice, each process counts as a slice.
    """
    if math.prod(ici) * math.prod(dcn) != len(devices):
        raise UserError(
            "PjitPartitioner.ici_mesh_shape",
            ici,
            f"which times dcn_mesh_shape {dcn} is {math.prod(ici) * math.prod(dcn)} devices, but "
            f"there are {len(devices)}",
            "set them to shapes whose product is that",
        )
    granules = {"process_is_granule": not hasattr(devices[0], "slice_index")}
    grid = mesh_utils.create_hybrid_device_mesh(ici, dcn, devices, **granules)
    return grid.reshape(-1, ici[2] * dcn[2])


def side_by_side(grid: np.ndarray) -> np.ndarray:
    """Return [data, model] devices with the rows of each host adjacent, so it feeds one range.

    Only the order of replicas changes, not which devices share one or reduce together.
    """
    hosts = [sorted({device.process_index for device in row}) for row in grid]
    return grid[sorted(range(len(grid)), key=hosts.__getitem__)]


def _dividing() -> "PjitPartitioner | None":
    """Return the partitioner of `activations`, if it has several devices."""
    partitioner = _active.get()
    return partitioner if partitioner is not None and partitioner.mesh.size > 1 else None


def constrain(x: jax.Array, *logical_axes: str | None) -> jax.Array:
    """Constrain `x` to the sharding of its logical axes; return it as is outside `activations`."""
    partitioner = _dividing()
    if partitioner is None:
        return x
    return jax.lax.with_sharding_constraint(x, partitioner.sharding(logical_axes, x.shape))


def spread(x: jax.Array) -> jax.Array:
    """Zero-pad the first dimension to a multiple of the devices, and shard it over all of them.

    Return `x` as is outside `activations`.
    """
    partitioner = _dividing()
    if partitioner is None:
        return x
    mesh = partitioner.mesh
    x = jnp.pad(x, [(0, -len(x) % mesh.size)] + [(0, 0)] * (x.ndim - 1))
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))


def gathered(sharding: NamedSharding) -> NamedSharding:
    """Return the same sharding, but not split along `data`."""
    axes = (axis if axis != "data" else None for axis in sharding.spec)
    return NamedSharding(sharding.mesh, PartitionSpec(*axes))


def gather_parameter(kernel: jax.Array, *logical_axes: str | None) -> jax.Array:
    """Gather a parameter along `data` for its use, and shard its gradient again.

    For parameters sharded over `data` this is one gather before their use, in their dtype of use,
    and one reduction of their gradient. Left alone, the compiler splits the products into windows,
    which makes a step on a v4-32 three times as long in the compiler's cycle counts.
    """
    partitioner = _dividing()
    if partitioner is None:
        return kernel
    stored = partitioner.sharding(logical_axes, kernel.shape)
    return _gather(gathered(stored), stored, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gather(used: NamedSharding, stored: NamedSharding, kernel: jax.Array) -> jax.Array:
    return jax.lax.with_sharding_constraint(kernel, used)


def _scatter_gradient(used, stored, _, gradient):
    # A full reduction and then a split: compilers fuse them into one reduce-scatter.
    gradient = jax.lax.with_sharding_constraint(gradient, used)
    return (jax.lax.with_sharding_constraint(gradient, stored),)


_gather.defvjp(
    lambda used, stored, kernel: (_gather(used, stored, kernel), None), _scatter_gradient
)


def per_device(
    fn: Callable, argument_axes: Sequence[Sequence[str | None]], result_axes: Sequence[str | None]
) -> Callable:
    """Return `fn` called on each device with the parts of the arguments that it holds.

    For functions that the compiler cannot shard, such as kernels; `fn` outside `activations`.
    `argument_axes` and `result_axes` are the logical axes of each argument and result.
    """
    partitioner = _dividing()
    if partitioner is None:
        return fn

    def call(*args):
        specs = (
            partitioner.sharding(a, x.shape).spec for a, x in zip(argument_axes, args, strict=True)
        )
        spec = lambda x: partitioner.sharding(result_axes, x.shape).spec
        results = jax.tree.map(spec, jax.eval_shape(fn, *args))
        sharded = jax.shard_map(
            fn, mesh=partitioner.mesh, in_specs=tuple(specs), out_specs=results, check_vma=False
        )
        return sharded(*args)

    return call


def cuts(axis: str, size: int) -> int:
    """Return the number of parts of an activation's logical axis; 1 outside `activations`."""
    partitioner = _dividing()
    if partitioner is None:
        return 1
    mesh_axis = partitioner.sharding((axis,), (size,)).spec[0]
    return partitioner.mesh.shape[mesh_axis] if mesh_axis else 1


def devices() -> list[jax.Device]:
    """Return the devices that the program is traced for."""
    partitioner = _active.get()
    return list(partitioner.mesh.devices.flat) if partitioner else jax.devices()
