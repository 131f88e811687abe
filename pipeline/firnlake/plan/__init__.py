"""Plan the work: inputs, outputs and reason of each plan. Equal metadata, policies and clocks give equal plans."""
