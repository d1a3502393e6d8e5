"""The default where there is no native kernel; imported by children, so it imports little."""

from dataclasses import fields

from simhash.signature.profiles import DEFAULT, Profile, Signature


class InNumpy(Profile):
    """A profile that never asks the kernel."""

    def signature(self, text: str, raw: bytes, title: str = "") -> Signature:
        """By NumPy."""
        return self.signature_in_numpy(text, raw, title)


IN_NUMPY = InNumpy(**{field.name: getattr(DEFAULT, field.name) for field in fields(DEFAULT) if field.init})
