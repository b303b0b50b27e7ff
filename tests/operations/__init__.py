"""Running an installation: processes as operators start them, and what they leave behind."""
