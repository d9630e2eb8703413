r = requests.post("http://localhost:30000/generate", json={"text": prompt, "sampling_params": {"temperature": 0.2}})
print(r.json())
