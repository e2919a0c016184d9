"""Instruction conformance: what each instruction of the table gives on a device, which the CPU has to give as well."""
