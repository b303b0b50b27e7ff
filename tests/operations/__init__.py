"""Running an installation: processes as operators start them, and the state they leave."""
