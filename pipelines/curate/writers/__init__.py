"""Writers of training files: one module, and one physical file, per trainer family."""
