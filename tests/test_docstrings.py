"""Every public definition has a docstring; a method that overrides another may inherit its docstring."""

import inspect
import pkgutil
from importlib import import_module

import neurosql

# torch defines the meaning, and every network has them.
SAID_BY_TORCH = {"forward", "backward"}


def modules():
    for found in pkgutil.walk_packages(neurosql.__path__, "neurosql."):
        if not found.name.rpartition(".")[2].startswith("_"):
            yield import_module(found.name)


def public(module):
    """Public functions and classes of a module, and public methods and properties of the classes."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        if inspect.isclass(value):
            fields = getattr(value, "__dataclass_fields__", {})
            for own, member in vars(value).items():
                member = getattr(member, "__func__", getattr(member, "func", member))
                defined = inspect.isfunction(member) or isinstance(member, property)
                if defined and not own.startswith("_") and own not in SAID_BY_TORCH and own not in fields:
                    yield f"{name}.{own}", getattr(value, own)


def test_every_public_definition_has_a_docstring():
    missing = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in public(module)
        if not inspect.getdoc(value)
    ]
    assert not missing, "\n".join(missing)


def test_every_module_has_a_docstring():
    assert not [module.__name__ for module in modules() if not module.__doc__]
